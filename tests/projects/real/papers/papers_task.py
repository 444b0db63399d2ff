EXPECTED = {"lxml": "text", "xslt": "<out>text</out>", "pillow": "PNG (4, 6)", "fonts": "True"}


def use() -> dict[str, str]:
    """Read and transform a document, draw a picture with text in it."""
    import io

    from lxml import etree
    from PIL import Image, ImageDraw, ImageFont, features

    document = etree.XML("<a><b>text</b></a>")
    sheet = etree.XML(
        '<x:stylesheet version="1.0" xmlns:x="http://www.w3.org/1999/XSL/Transform">'
        '<x:template match="/"><out><x:value-of select="//b"/></out></x:template></x:stylesheet>'
    )
    picture = io.BytesIO()
    Image.new("RGB", (2, 3), "red").resize((4, 6)).save(picture, "PNG")
    image = Image.open(picture)
    paper = Image.new("L", (60, 20))
    ImageDraw.Draw(paper).text((0, 0), "text", font=ImageFont.load_default(16), fill=255)
    return {
        "lxml": str(document.xpath("string(//b)")),
        "xslt": etree.tostring(etree.XSLT(sheet)(document)).decode(),
        "pillow": f"{image.format} {image.size}",
        "fonts": str(features.check("freetype2") and paper.getbbox() is not None),
    }
